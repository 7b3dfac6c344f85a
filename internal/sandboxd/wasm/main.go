package wasm

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// defaultMemory is what a module has where no variable says more: in a context, say.
const defaultMemory = 256 << 20

// Exit codes of what is not the module's own. Those of what cannot start are a shell's; a trap ends as an abort does.
const (
	codeUsage         = 2
	codeCannotExecute = 126
	codeNotFound      = 127
	codeTrap          = 128 + int(unix.SIGABRT)
	codeCPU           = 128 + int(unix.SIGXCPU)
)

const (
	// maxProcs bounds the threads that compile: they count against the sandbox's pids.
	maxProcs  = 4
	maxReport = 4 << 10 // bytes of what is said about a module that failed
)

// RunIfAsked runs a module, and never returns, when this process was started with sandbox.WasmCommand as its first argument.
// env is the environment of the process.
func RunIfAsked(env []string) {
	if len(os.Args) < 2 || os.Args[1] != sandbox.WasmCommand {
		return
	}
	os.Exit(asProgram(os.Args[2:], env))
}

// asProgram is the main function of "skerry-sandboxd wasm".
func asProgram(args, env []string) int {
	if len(args) == 0 {
		report("usage: skerry-sandboxd wasm MODULE.wasm [ARGUMENT…]")
		return codeUsage
	}
	runtime.GOMAXPROCS(min(runtime.NumCPU(), maxProcs))
	memory, err := number(env, sandbox.WasmMemoryEnv, defaultMemory)
	if err != nil {
		report("%v", err)
		return codeUsage
	}
	seconds, err := number(env, sandbox.WasmCPUEnv, 0)
	if err == nil {
		err = limitCPU(seconds)
	}
	if err != nil {
		report("%v", err)
		return codeUsage
	}
	module, code, err := read(args[0])
	if err != nil {
		report("%v", err)
		return code
	}
	cwd, err := os.Getwd()
	if err != nil {
		report("the working folder: %v", err)
		return codeCannotExecute
	}
	files, err := mount(threadFiles, cwd, os.TempDir())
	if err != nil {
		report("%v", err)
		return codeCannotExecute
	}
	defer files.close()
	code, err = run(context.Background(), module, settings{args: args, env: visible(env, cwd), memory: memory, files: files})
	if err != nil {
		report("%v", err)
	}
	return code
}

// report says why a module did not run to its end.
func report(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxReport {
		text = strings.ToValidUTF8(text[:maxReport], "") + " …"
	}
	fmt.Fprintln(os.Stderr, "wasm: "+text)
}

// number reads a variable that holds a positive number.
func number(env []string, name string, absent uint64) (uint64, error) {
	at := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	if at < 0 {
		return absent, nil
	}
	text := env[at][len(name)+1:]
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s: %.40q is not a positive number", name, text)
	}
	return n, nil
}

// limitCPU bounds the processor time of this process. The kernel sends SIGXCPU at the limit, and SIGKILL soon after it.
func limitCPU(seconds uint64) error {
	if seconds == 0 {
		return nil
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGXCPU)
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + 2}); err != nil {
		return fmt.Errorf("the limit of processor time: %w", err)
	}
	go func() {
		<-asked
		report("the module has used its %d seconds of processor time", seconds)
		os.Exit(codeCPU)
	}()
	return nil
}

// read reads the file of a module. Opening a FIFO would wait for a writer.
func read(path string) (module []byte, code int, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, codeNotFound, err
	case !info.Mode().IsRegular():
		return nil, codeCannotExecute, fmt.Errorf("%.200q is not a file", path)
	case info.Size() > sandbox.MaxWasmBytes:
		return nil, codeCannotExecute, fmt.Errorf("%.200q has %d bytes; a module has at most %d", path, info.Size(), sandbox.MaxWasmBytes)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, codeCannotExecute, err
	}
	defer f.Close() //nolint:errcheck // it was read
	module, err = io.ReadAll(io.LimitReader(f, sandbox.MaxWasmBytes+1))
	if err == nil && len(module) > sandbox.MaxWasmBytes {
		err = fmt.Errorf("%.200q grows", path)
	}
	return module, codeCannotExecute, err
}

// visible returns the variables that a module sees. Skerry's own are of no use to it: it cannot connect.
func visible(env []string, cwd string) [][2]string {
	seen := [][2]string{{"PWD", cwd}}
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || name == "PWD" || strings.HasPrefix(name, "SKERRY_") || strings.HasPrefix(name, "MCP_") {
			continue
		}
		seen = append(seen, [2]string{name, value})
	}
	return seen
}
