# A node of a consortium, or a simulation, without a GPU:
#   docker build -t fedul-flwr .
#   docker run --rm fedul-flwr demo
# BASE names an image that its publisher may replace. To get the same one for good, write the digest
# that `docker buildx imagetools inspect` of it shows: --build-arg BASE=python@sha256:…
ARG BASE=python:3.11.13-slim-bookworm
FROM ${BASE}

# PyTorch's builds for CPUs. The package index has those for CUDA, some 5 GB more and under NVIDIA's
# license: --build-arg TORCH_INDEX=https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN useradd --create-home fedul
WORKDIR /opt/fedul-flwr
# All but PyTorch by version and hash (`make lock`).
COPY requirements.lock .
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" torch==2.15.0 torchvision==0.29.2 \
    && pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps .
USER fedul
WORKDIR /home/fedul
ENTRYPOINT ["fedul-flwr"]
CMD ["--help"]
