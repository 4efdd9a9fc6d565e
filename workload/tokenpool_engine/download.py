"""Fetch a model from the hub into a folder. The only room that sees the hub's token, and only in its own container."""

from typing import Final

from tokenpool_engine.failure import Reason, StartError
from tokenpool_engine.settings import Download

SCHEME: Final = "hf://"
# Weights as safetensors, configs and tokenizers; never pickles or code.
WANTED: Final = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.txt"]


def download(settings: Download) -> None:
    """Fetch what is needed and nothing else. Raises StartError with what to do."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    repository = settings.source.removeprefix(SCHEME)
    where = f"{settings.source}" + (f" at {settings.revision}" if settings.revision else "")
    try:
        snapshot_download(repository, revision=settings.revision, local_dir=settings.into, allow_patterns=WANTED)
    except GatedRepoError as error:
        advice = "check spec.model.credentialsSecret and that its account may read the model"
        raise StartError(Reason.DOWNLOAD_FAILED, f"{where} needs a token with access: {advice}") from error
    except RevisionNotFoundError as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{where}: the hub has no such revision") from error
    except RepositoryNotFoundError as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{where}: the hub has no such model, or it is private") from error
    except Exception as error:  # time-outs and broken transfers come as errors of the client's own HTTP libraries
        raise StartError(Reason.DOWNLOAD_FAILED, f"{where}: {type(error).__name__}: {error}") from error
