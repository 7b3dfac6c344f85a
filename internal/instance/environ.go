package instance

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Environ returns the environment of a process in a sandbox: layers of what the template, the sandbox and the caller say, each over
// those before it, and over all of them ours.
func Environ(t sandbox.Thread, execID, token string, layers ...map[string]string) []string {
	all := map[string]string{}
	for _, layer := range layers {
		maps.Copy(all, layer)
	}
	env := make([]string, 0, len(all)+6)
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	return append(env,
		"SKERRY_THREAD_ID="+t.ID, "SKERRY_EXEC_ID="+execID, "SKERRY_EXEC_TOKEN="+token,
		"MCP_BRIDGE_SOCKET="+sandbox.BridgeSocket,
		"MCP_BRIDGE_PORT="+strconv.Itoa(sandbox.BridgePort),
		fmt.Sprintf("MCP_RPC_ENDPOINT=http://localhost:%d/call", sandbox.BridgePort))
}
