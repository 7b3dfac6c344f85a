package main

import (
	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
	"github.com/skerry-sandbox/skerry/internal/driver/docker/dockertest"
)

const (
	// namespace of the containerd that is started here.
	namespace = "skerry"
	// image of the template, which an engine of docker's has to be given.
	image = "skerry/base:latest"
)

// engine is a container engine of this run's own.
type engine interface {
	Kill() error // as a crash would
	Run() error  // again, after Kill
	// Stop ends it in order and takes away what is its. The error names what sandboxes left in it.
	Stop() error
	// Env is what a server needs to find it.
	Env() string
	// Shims is what the command line of each of its shims has.
	Shims() string
}

func (f *fleet) startEngine() (engine, error) {
	switch f.driver {
	case "containerd":
		programs, err := containerdtest.Built(f.cache)
		if err != nil {
			return nil, err
		}
		d, err := containerdtest.Start(programs)
		return containerdEngine{d}, err
	case "docker":
		e, err := dockertest.Start(image)
		return dockerEngine{e}, err
	}
	return nil, nil
}

type containerdEngine struct{ *containerdtest.Daemon }

func (e containerdEngine) Stop() error   { return e.Daemon.Stop(namespace) }
func (e containerdEngine) Env() string   { return "SKERRY_CONTAINERD_ADDRESS=" + e.Address }
func (e containerdEngine) Shims() string { return e.Address }

type dockerEngine struct{ *dockertest.Engine }

func (e dockerEngine) Env() string   { return "SKERRY_DOCKER_ADDRESS=" + e.Socket }
func (e dockerEngine) Shims() string { return e.Containerd.Address }
