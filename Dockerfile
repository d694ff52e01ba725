# One image for every job: the pinned GPU stack, a C compiler, the problems, the artifacts, the harness.
# Builds with BuildKit and with the classic builder, on Ubuntu 24.04 (python3.12) and on Debian bookworm (python3.11).
ARG BASE_IMAGE=nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66
FROM ${BASE_IMAGE}

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# gcc and Python.h: Triton compiles each kernel's launcher at run time. g++: torch.compile's CPU code. curl: Inspect, which
# agents run on, asks inside their container whether its bridge listens.
# Versions are recorded, not pinned: a distribution drops old ones, so a pin here would stop the build within weeks.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates curl g++ gcc libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /usr/share/repro \
    && dpkg-query --show --showformat '${Package} ${Version} ${Architecture}\n' > /usr/share/repro/packages.txt

# Only the lock file comes before the 7 GB of wheels, so that no other change installs them again.
COPY requirements/image.txt /opt/repro/requirements/image.txt
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --cert /etc/ssl/certs/ca-certificates.crt --disable-pip-version-check --no-cache-dir \
        --require-hashes --requirement /opt/repro/requirements/image.txt

# Only where asked: --build-arg CLAUDE_CODE=ADDRESS of the tarball that requirements/claude-code.json pins by its hash.
ARG CLAUDE_CODE=
COPY requirements/claude-code.json requirements/install_claude_code.py /opt/repro/requirements/
RUN if [ -n "${CLAUDE_CODE}" ]; then \
        /opt/venv/bin/python /opt/repro/requirements/install_claude_code.py "${CLAUDE_CODE}" /usr/local/bin; \
    fi

# A volume mounted at /job or /state takes the folder's owner and mode: the judge's alone, workers are of other users.
# /results is where a plain `docker run repro benchmark` leaves its bundle.
RUN groupadd --gid 10001 repro \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin repro \
    && install --directory --owner 10001 --group 10001 --mode 0700 /job /state \
    && install --directory --owner 10001 --group 10001 --mode 0777 /results

# USER: torch asks for a user name, and a uid without an account has none.
ENV HOME=/tmp \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_VISIBLE_DEVICES=all \
    PATH=/opt/venv/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/opt/repro \
    PYTHONUNBUFFERED=1 \
    REPRO_RESULTS=/results \
    TORCHINDUCTOR_CACHE_DIR=/tmp/inductor \
    TRITON_CACHE_DIR=/tmp/triton \
    USER=repro

WORKDIR /opt/repro
COPY requirements/ requirements/
COPY problems/ problems/
COPY artifacts/ artifacts/
COPY pyproject.toml README.md LICENSE entrypoint.py ./
COPY tests/ tests/
COPY repro/ repro/
# The modes of the checkout are the host's; here any uid reads and none writes. Compiled, for nothing is written at run time.
RUN chmod -R a+rX,go-w /opt/repro \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode checked-hash entrypoint.py repro problems

# Late, because these change from build to build.
ARG BASE_IMAGE
ARG GIT_SHA=unknown
ARG GIT_DIRTY=unknown
ARG SOURCE=unknown
ENV REPRO_GIT_SHA=${GIT_SHA} \
    REPRO_GIT_DIRTY=${GIT_DIRTY}
LABEL org.opencontainers.image.base.name=${BASE_IMAGE} \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.revision=${GIT_SHA} \
      org.opencontainers.image.source=${SOURCE} \
      org.opencontainers.image.title=repro \
      org.opencontainers.image.version=0.1.0

HEALTHCHECK NONE
USER 10001
ENTRYPOINT ["/opt/venv/bin/python", "/opt/repro/entrypoint.py"]
CMD ["--help"]
