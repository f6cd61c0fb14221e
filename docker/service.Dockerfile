# API, model worker, reconciler and migrations: everything that needs no torch and no GPU.
#   docker build -f docker/service.Dockerfile -t warpsmith-service .
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
 && /opt/warpsmith/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".[service,otel]"

FROM python:3.11.11-slim-bookworm
RUN groupadd --gid 10001 warpsmith \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/warpsmith --shell /usr/sbin/nologin warpsmith \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/warpsmith
COPY --from=build /opt/warpsmith /opt/warpsmith
ENV PATH=/opt/warpsmith/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    WARPSMITH_HOME=/var/lib/warpsmith \
    WARPSMITH_LOG_FORMAT=json
WORKDIR /var/lib/warpsmith
USER 10001:10001
EXPOSE 8420
CMD ["python", "-m", "warpsmith.service.server.serve"]
