# A base for the engine on nodes without GPUs: Python and PyTorch's CPU build.
#   docker build -f e2e/images/torch-cpu.Dockerfile -t torch-cpu e2e/images
#   docker build -f workload/Dockerfile --target engine --build-arg ENGINE_BASE_IMAGE=torch-cpu -t tokenpool-engine .

ARG BASE_IMAGE=docker.io/library/python:3.13-slim
FROM ${BASE_IMAGE}
ARG TORCH_VERSION=2.15.0
# PyTorch keeps its CPU builds, and what they need, on an index of its own.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=secret,id=ca-bundle,target=/run/secrets/ca-bundle \
    if [ -s /run/secrets/ca-bundle ]; then export PIP_CERT=/run/secrets/ca-bundle; fi \
 && python3 -m pip install -q --no-cache-dir --root-user-action ignore --index-url "${TORCH_INDEX}" "torch==${TORCH_VERSION}"
