# Judge workers: torch, Triton, NVRTC and a C++ compiler. The CUDA libraries come with torch's wheels; the host brings the
# driver (NVIDIA Container Toolkit). The same image judges `cpu` targets where there is no GPU.
#   docker build -f docker/judge.Dockerfile -t warpsmith-judge .
FROM python:3.11.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY src src
COPY service service
COPY workers workers
COPY prompts prompts
COPY kernels_db kernels_db
COPY examples examples
RUN python -m venv /opt/warpsmith \
 && /opt/warpsmith/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".[worker,otel]"

FROM python:3.11.11-slim-bookworm
# The compiler of `cpp` candidates and of Triton's launchers; torch.compile builds its CPU baselines with it.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++=4:12.2.0-3 libc6-dev \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 warpsmith \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/warpsmith --shell /usr/sbin/nologin warpsmith \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/warpsmith /var/cache/warpsmith
COPY --from=build /opt/warpsmith /opt/warpsmith
ENV PATH=/opt/warpsmith/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    WARPSMITH_HOME=/var/lib/warpsmith \
    WARPSMITH_JUDGE_CACHE=/var/cache/warpsmith \
    WARPSMITH_LOG_FORMAT=json
WORKDIR /var/lib/warpsmith
USER 10001:10001
CMD ["python", "-P", "-m", "warpsmith.workers.queue", "worker", "-Q", "judge.cpu-x86_64", "-n", "judge@%h", "--pool", "prefork", "-c", "1"]
