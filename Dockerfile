# The images with our programs, for machines that reach a container registry. Kubernetes (docs/kubernetes.md):
#   docker build --target server -t skerry/server .
#   docker build --target bridge -t skerry/bridge .
# images/programs.sh makes these two without one. The last target is the server of docker-compose.yml.
FROM node:22-bookworm-slim AS console
WORKDIR /src/console
COPY console/package.json console/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY console ./
COPY sdk/typescript/src ../sdk/typescript/src
RUN npx vite build

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
COPY --from=console /src/internal/api/console/dist internal/api/console/dist
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/skerry-sandbox/skerry/internal/platform/buildinfo.version=$VERSION" -o /out/ ./cmd/... \
 && mkdir -p /root-of-server && mkdir -m 1777 /root-of-server/tmp

FROM scratch AS server
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /root-of-server/ /
COPY --from=build /out/skerry /out/skerry-sandboxd /usr/local/bin/
ENV PATH=/usr/local/bin
ENTRYPOINT ["/usr/local/bin/skerry"]
CMD ["serve"]

FROM scratch AS bridge
COPY --from=build /out/skerry-bridge /out/skerry-sandboxd /
USER 65534:65534
ENTRYPOINT ["/skerry-bridge"]

# Sandboxes are made by the docker daemon whose socket is mounted into it. Node, npm and Python are for stdio MCP servers, which run beside the server.
FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates nodejs npm python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/skerry /out/skerry-sandboxd /opt/skerry/bin/
COPY skills /opt/skerry/skills
COPY plugins /opt/skerry/plugins
COPY scripts/container-start.sh /opt/skerry/bin/start
ENV PATH=/opt/skerry/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SKERRY_SKILLS=/opt/skerry/skills SKERRY_PLUGINS_PATH=/opt/skerry/plugins SKERRY_DRIVER=docker SKERRY_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["/opt/skerry/bin/start"]
