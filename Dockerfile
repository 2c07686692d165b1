# The image of a server and of its sites, for the compose.yaml that `fedaux deploy init` writes: docker build --tag fedaux .
# --build-arg PIP_EXTRA_INDEX_URL=...   PyTorch's index for your hardware: without it, the build with CUDA comes from PyPI
# --build-arg EXTRAS=deploy,text       of pyproject.toml
# --secret id=pip,src=pip.conf          pip's settings, with passwords perhaps; not kept in the image
ARG BASE=python:3.11-slim

FROM $BASE AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN python -m venv /opt/fedaux
COPY constraints.txt /src/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/fedaux/bin/pip install --no-cache-dir --constraint /src/constraints.txt torch
ARG EXTRAS=deploy,metrics,parquet
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/fedaux/bin/pip install --no-cache-dir --constraint /src/constraints.txt "/src[$EXTRAS]" \
    && /opt/fedaux/bin/pip check \
    && /opt/fedaux/bin/pip uninstall --yes pip

FROM $BASE
RUN useradd --uid 10001 --create-home fedaux
COPY --from=build /opt/fedaux /opt/fedaux
ENV PATH=/opt/fedaux/bin:$PATH HOME=/home/fedaux
USER fedaux
WORKDIR /home/fedaux
CMD ["fedaux", "--help"]
