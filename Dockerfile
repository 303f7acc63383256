# The server alone in a small image: docker build -t gapless .   How to run it: docs/operations.md.
FROM debian:bookworm-slim AS build
WORKDIR /gapless
COPY . .
# Installs the tools it needs, builds, and copies what was built.
RUN ./dev install /out

FROM debian:bookworm-slim
# Debian moves these versions with its security fixes, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libfmt9 libspdlog1.10 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/bin/gapless /usr/local/bin/gapless
COPY --from=build /out/share/doc /usr/local/share/doc
# A user that owns nothing.
USER 65532:65532
VOLUME ["/models"]
EXPOSE 8080
# Ready, not only alive: a server that loads, drains or is stuck is not healthy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
    CMD ["/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /ready HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
# The program is process 1 and gets SIGTERM itself. Give it the time of --shutdown-timeout: docker run --stop-timeout 45.
ENTRYPOINT ["/usr/local/bin/gapless", "serve", "--host", "0.0.0.0"]
CMD ["/models/model.gguf"]
