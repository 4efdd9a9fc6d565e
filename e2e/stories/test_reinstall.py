"""The chart is uninstalled and installed again while a pool serves: no shard is restarted, no request lost."""

from collections.abc import Callable

from images.build import BuiltImage
from stack.install import install_chart, uninstall_chart
from stack.kubectl import Kubectl
from stack.pool import Pool


def test_uninstall_and_reinstall_with_the_pool_alive(
    make_pool: Callable[[str], Pool], installed: Kubectl, images: dict[str, BuiltImage]
) -> None:
    pool = make_pool("alive")
    pool.apply()
    pool.wait_ready(shards=1)
    before = [(pod["metadata"]["uid"], pod["status"]["startTime"]) for pod in pool.shards()]

    uninstall_chart(installed)
    assert pool.kubectl.exists("tokenpool", "alive"), "the CRD is kept, and the pool with it"
    assert pool.client().models.list().data[0].id == "smollm2-135m-instruct"

    install_chart(installed, images)
    pool.patch({"shards": {"min": 2}})
    pool.wait_ready(shards=2)
    after = [(pod["metadata"]["uid"], pod["status"]["startTime"]) for pod in pool.shards()]
    assert before[0] in after
    assert all(status["restartCount"] == 0 for pod in pool.shards() for status in pod["status"]["containerStatuses"])
