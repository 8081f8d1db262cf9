# A node of a consortium, or a simulation, without a GPU:
#   docker build -t fedul-flwr --build-arg TORCH_INDEX=URL .
#   docker run --rm fedul-flwr demo
# URL is the index of PyTorch's builds for CPUs, which PyTorch's page of installations names.
# Without it the image has the build for CUDA, some 5 GB more.
FROM python:3.11.13-slim-bookworm

ARG TORCH_INDEX=""
RUN useradd --create-home fedul
WORKDIR /opt/fedul-flwr
COPY . .
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.15.0 torchvision==0.29.2 \
    && pip install --no-cache-dir .
USER fedul
WORKDIR /home/fedul
ENTRYPOINT ["fedul-flwr"]
CMD ["--help"]
