package main

import (
	"os"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
)

// probe does not return when a driver that probes a runtime runs this program inside a small sandbox.
func probe(arg string) {
	if arg == runtimeprobe.Arg {
		os.Exit(runtimeprobe.Main())
	}
}
