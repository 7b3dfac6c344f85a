// Package wasm runs one WebAssembly module as a program: WASI preview 1, by wazero.
//
// It runs in a process of its own, "skerry-sandboxd wasm MODULE.wasm ARGS…", which is an exec as any other: under a
// supervisor, with its deadline, system call filter, cgroup and uid. So nothing of a module is in PID 1, also not its
// compilation. The module has the streams, arguments and variables of the process, clocks, random bytes, the files of the
// thread (see threadFiles) and a /tmp of its own. It has no sockets, starts no programs, and calls no tools.
//
// What bounds it: the size of the file (sandbox.MaxWasmBytes), the pages of memory (sandbox.WasmMemoryEnv), the processor time of the process with
// compilation (sandbox.WasmCPUEnv), and the deadline, memory and pids of the exec. wazero counts no instructions.
package wasm
