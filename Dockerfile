# The server image. Sandboxes are made by the docker daemon whose socket is mounted into it; see
# docker-compose.yml.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/skerry-sandbox/skerry/internal/buildinfo.version=$VERSION" -o /out/ ./cmd/skerry ./cmd/skerry-sandboxd

# Node, npm and Python are for stdio MCP servers, which run beside the server.
FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates nodejs npm python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/skerry /out/skerry-sandboxd /opt/skerry/bin/
COPY skills /opt/skerry/skills
COPY scripts/container-start.sh /opt/skerry/bin/start
ENV PATH=/opt/skerry/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SKERRY_SKILLS=/opt/skerry/skills SKERRY_DRIVER=docker SKERRY_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["/opt/skerry/bin/start"]
