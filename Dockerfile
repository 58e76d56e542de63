# A server of the bundled graph `world`, with a run that is trained while the image is built.
#
#     docker build --tag betae .
#     docker run --rm --read-only --tmpfs /tmp --publish 127.0.0.1:8000:8000 betae
FROM python:3.11-slim

# The usual package of PyTorch brings gigabytes for GPUs; an index that has one for the CPU alone can be
# given to pip with `docker build --build-arg PIP_EXTRA_INDEX_URL=...`.
ARG PIP_EXTRA_INDEX_URL
WORKDIR /usr/src/betae
COPY pyproject.toml README.md LICENSE ./
COPY betae ./betae
# hadolint ignore=DL3013  # it is no package by name
RUN pip install --no-cache-dir '.[index,serve]'

RUN useradd --system --uid 10001 betae && install --directory --owner betae /srv/betae
USER 10001
WORKDIR /srv/betae
# numba keeps what it compiles there; nothing else is written but the store for SPARQL, also in /tmp.
ENV NUMBA_CACHE_DIR=/tmp/numba
# The second command fits what the first, which answers from the completed graph, has no need of.
RUN betae demo --out /srv/betae/world \
    && betae answer /srv/betae/world/run '?X . capital(France, ?X)' --method embedding \
    && rm -rf /tmp/numba

EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz')"]
CMD ["betae", "serve", "/srv/betae/world/run", "--host", "0.0.0.0", "--port", "8000"]
