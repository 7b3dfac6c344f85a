package template

import (
	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	minWasmMemory = 1 << 20
	maxWasmCPU    = 3600 // seconds; no exec is longer
)

// wasm reads what a WebAssembly module may use.
func (p *parser) wasm(to **sandbox.Wasm) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		*to = &sandbox.Wasm{}
		var memory Size
		p.fields(n, field+".", map[string]func(string, *yaml.Node){"memory": p.size(&memory), "cpu_s": number(p, &(*to).CPUSeconds)})
		(*to).MemoryBytes = int64(memory)
	}
}

func (p *parser) checkWasm(t *Template) {
	if t.Wasm == nil || p.broken["wasm"] {
		return
	}
	if _, there := p.seen["wasm.memory"]; there && !p.broken["wasm.memory"] {
		p.wrong(t.Wasm.MemoryBytes < minWasmMemory || t.Wasm.MemoryBytes > sandbox.MaxWasmMemory, "wasm.memory", "%d: want 1MiB to 4GiB", t.Wasm.MemoryBytes)
		p.wrong(t.Limits.Memory > 0 && t.Wasm.MemoryBytes > int64(t.Limits.Memory), "wasm.memory", "%d is more than limits.memory", t.Wasm.MemoryBytes)
	}
	if _, there := p.seen["wasm.cpu_s"]; there && !p.broken["wasm.cpu_s"] {
		p.wrong(t.Wasm.CPUSeconds < 1 || t.Wasm.CPUSeconds > maxWasmCPU, "wasm.cpu_s", "%d: want 1 to %d seconds", t.Wasm.CPUSeconds, maxWasmCPU)
	}
}
