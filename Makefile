# `make help` lists what there is.
SHELL := /bin/bash
export SKERRY_CACHE ?= /var/cache/skerry
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/skerry-sandbox/skerry/internal/platform/buildinfo.version=$(VERSION)

# Sandboxes get uids and mounts of their own, so the server runs as root.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo 'sudo -E env "PATH=$$PATH"')

.DEFAULT_GOAL := help
IMAGES ?= base
.PHONY: help build console-shots docs demo test test-all test-machine check bench chaos e2e-kubernetes images images-test run generate fuzz release release-test

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/skerry with the web console, bin/skerry-sandboxd and bin/skerry-bridge
	@scripts/console.sh || true
	@echo "  building bin/skerry, bin/skerry-sandboxd and bin/skerry-bridge (1 to 3 minutes the first time)"
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

images: ## build the image of the template "base", or IMAGES="browser data office" (mmdebstrap, npm, pip; no registry needed)
	@scripts/install.sh images
	@images/build.sh $(IMAGES)

images-test: ## build all images anew where they changed, and run the tests of those of the templates
	@scripts/install.sh run images test runsc
	@scripts/dockerd.sh
	@images/build.sh base browser data office
	@$(SUDO) go test -count=1 -run 'TestTemplateImages|TestBundledSkills' ./internal/e2e

demo: build ## the whole of it on this machine: a skill, a plugin's command, code that calls tools, the audit trail
	@scripts/install.sh run images mcp
	@images/build.sh base
	@$(SUDO) bin/skerry demo

run: build ## start a server on 127.0.0.1:8080 with its data in ./skerry-data
	@$(SUDO) bin/skerry serve --data skerry-data

test: ## what a change is likely to break, with -short and real Docker, runc, gVisor, Redis and MCP servers (docs/testing.md)
	@scripts/test.sh

test-all: ## every test, whole: also the attacks, chaos, images of templates, a real Kubernetes
	@scripts/test.sh all

check: ## what needs no container: format, vet, lint, generated code, shell, skills
	@scripts/check.sh

bench: build ## Skerry beside docker exec, npx tsx and others, into docs/performance.md; under 20 minutes (ONLY=speed,files … prints these parts)
	@scripts/install.sh run images test mcp containerd rivals
	@scripts/dockerd.sh
	@images/build.sh base data
	@CGO_ENABLED=0 go build -o bin/bench ./bench
	@$(SUDO) $(if $(findstring kubernetes,$(ONLY)),scripts/kubernetes.sh) bin/bench -bin bin -cache $(SKERRY_CACHE) $(if $(ONLY),-only $(ONLY),-json docs/bench.json -svg docs/bench.svg -page docs/performance.md)

chaos: build ## ten minutes in which servers, sandboxes, Redis and the engine are killed at random (CHAOS="-driver docker -duration 2m")
	@scripts/install.sh run images test containerd
	@images/build.sh base
	@go build -o bin/chaos ./bench/chaos
	@$(SUDO) bin/chaos -bin bin -cache $(SKERRY_CACHE) $(or $(CHAOS),-driver containerd)

e2e-kubernetes: ## a real cluster: the Helm chart with demo, network, rolling upgrade under load and what is killed, the attacks, the driver's suite on runc and gVisor (KUBECONFIG, or a cluster that is started)
	@scripts/install.sh run images test helm
	@scripts/dockerd.sh
	@$(SUDO) scripts/kubernetes.sh scripts/e2e-kubernetes.sh all

test-machine: ## on a Debian with systemd and cgroup v2 in qemu: the units, the drivers, the attacks, chaos (PARTS="service")
	@scripts/install.sh run images test runsc containerd machine
	@images/build.sh base
	@$(SUDO) test/machine/check.sh $(PARTS)

redis-away: ## ten minutes without Redis while execs run, thrice at the same time: it hangs, is killed, comes back empty
	@scripts/install.sh run images test
	@images/build.sh base
	@$(SUDO) go test -count=1 -v -timeout 30m -run '^TestRedisAway$$' ./internal/e2e -redis-away 10m

generate: ## make the generated code again
	@scripts/generate.sh

release: ## all files of a release in dist/: programs, packages, images, clients, chart (SIGNING_KEY=key.pem VERSION=0.2.0 IMAGES="base data office")
	@scripts/release.sh

release-test: ## make a release with the image base, install it on fresh Debians and as an rpm, and run a first exec
	@test/release/check.sh

console-shots: build ## screenshots of the web console's pages, for docs/console.md
	@scripts/install.sh run images console browser
	@$(SUDO) env SKERRY_CONSOLE_SHOTS=$(CURDIR)/docs/console console/test/test.sh

docs: ## the documentation as a site in bin/site, with search; fails when a link leads nowhere
	@scripts/docs.sh

fuzz: ## each fuzz test for 10 seconds
	@scripts/fuzz.sh
