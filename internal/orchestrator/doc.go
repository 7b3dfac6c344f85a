// Package orchestrator builds the sandboxes of a server from their parts, once for every driver. The parts that callers use are
// the exported fields of an Orchestrator; each has a package of its own, but for Threads, Prompts and Probes.
//
// A part is built after the parts that it is made of, and holds the parts themselves. What two parts need of
// each other is a part of its own, built before both. These are the registries of instances, execs and
// contexts, and instance.Retirements, by which a part asks for the end of an instance. One cycle is left
// (ownedSandboxes): to take a thread is to adopt its sandbox.
//
// Instances (package instance) are in one map: the goroutine that puts one in starts it, all others wait for it.
// An Exec (package execution) is one run of something in an instance; it has exactly one end, which is recorded and
// durable before a caller sees it. Tool calls of agents are in package tools/call.
//
// # An exec
//
//  1. api/rest authenticates (cache, else one Redis round trip), compares the role with the route's
//     rule, and calls run.Runner.RunCommand.
//  2. The orchestrator finds the thread's instance in its map (else starts a sandbox), gives the exec a
//     token at the bridge, appends the attempt to the audit log, and calls Run on the connection that
//     sandboxd dialled. No container engine is asked.
//  3. sandboxd hands the command to a supervisor that was started ahead. It is the sub-reaper of all
//     that the command starts; at the end, or at the deadline, everything below it is killed before the
//     exit is reported.
//  4. Events come back numbered. The orchestrator keeps them, so that clients can resume; at the exit it
//     asks the bridge for the tool calls, lists changed files, appends the result, waits for the fsync,
//     and only then lets callers see it.
//
// Tool calls of code: Python and bun connect to the bridge's own socket (MCP_BRIDGE_SOCKET), which saves a
// copy through sandboxd; others, and all while the server starts again, to localhost:9876, where sandboxd
// passes the bytes on.
//
// An exec with a terminal (process/terminal.go, execution/execs.go, api/rest/execs/terminal.go) differs in three
// points: its one stream never stops coming, so both sides keep the newest part of it and its numbers may
// have gaps; typing and sizes go in by WriteStdin and Resize; and a WebSocket carries it, where each
// binary frame is one event. Each client follows by itself, so a slow one loses events and delays no other
// (docs/terminals.md).
//
// A context (docs/contexts.md) is a process.Session: an interpreter (interp/kernel.py, interp/kernel.mjs)
// under a supervisor of its own. It serves one exec after the other over a socket pair. sandboxd holds the
// living contexts. Package execution/contexts holds their names, claims one for each run, and says what
// became of it.
//
// Wrappers of tools do not wait for an exec: when the hub's version moves, package tools/wrappers writes
// them into every sandbox that runs, each folder exchanged in one step.
//
// Skills do not wait either. skills.Library.Set is what a user has now, Set.View what a thread has of it,
// and skills.Folder.Show makes a folder show it. As long as nothing changes, each returns the same pointer
// and costs a few stats. Package skills/mounted shows it in every sandbox of the user when this server
// changes something. It does so in all of them every 250 ms for changes by others, and before each exec
// (docs/skills.md).
//
// The sandbox, not the exec, is the trust boundary: sandboxd shares its uid with the code. Whatever it
// says is data. The server has a deadline of its own, two seconds after sandboxd's; when it passes, the
// sandbox is ended.
//
// When the policy lets a call through only with an approval, the call waits in approval.Ask, between its
// attempt and the MCP server. The request is in the shared state, and any server takes the decision.
// Meanwhile the deadline is held, here and in sandboxd, by leases of 15 s (package execution/run, decision
// 0029). Runs are put to the policy, too, before they have an id.
//
// # An instance
//
// An Instance (package instance) is the sandbox of one thread as this process knows it. The goroutine that
// puts it into the map starts it; all others wait for Ready. It is taken out when nothing of it is left (Gone). Its folder <data>/run/<id>
// holds sock/ (mounted at /run/skerry), code-api/ (mounted), view/skills and view/plugins (mounted), and
// secret.json (not mounted): the secret by which sandboxd is known again when the server comes back.
//
// With a pool in its template, package instance/pool keeps sandboxes ready, and start.Maker takes one for a
// thread without files: a hook renames its workspace to where the thread's files are and asks no engine (decision 0020). Where sandboxes have disks of their own a thread with files gets one, too:
// they are copied into it, and a note in its run folder (filled, not mounted) says so before anything runs
// there (decision 0032).
//
// A new instance takes a slot, waiting in its tenant's queue when there is none, and releases
// it when its sandbox is gone. Package instance/lifecycle looks every second for instances that are idle or too
// old: BeginStop takes one out of use in the same step that sees that nothing runs in it, and Lifecycle.stop ends
// it. Package instance/savedspec is what outlives an instance. Package instance/load watches what an instance with something in it
// does to its neighbours: it lowers the weight of an instance that computes, and ends a fork bomb (decision 0019).
// The way of an exec into an instance is start.Starts.Enter: it waits for an instance, wakes a paused one, and
// starts over when the instance was put away meanwhile. See docs/lifecycle.md.
//
// # Where the server's disk is not the sandbox's
//
// With a driver.Remote (Kubernetes; memory.NewRemote in tests) mounts are copies, and the sockets of
// /run/skerry are reached by a tunnel. Package workspace/copies says when what is copied.
//
// Files at the server belong to the thread's uid as ever. That needs root with CHOWN, FOWNER and
// DAC_OVERRIDE only: quotas of the kernel need others, so there the limit is what the server
// counts when it writes and pulls. A tool server in a sandbox (package tools/servers) has its home folder
// copied back every 30 s and at its end; a process of the server needs SETUID and SETGID, and is
// refused without.
//
// # Two servers
//
// Each process of a data folder is a replica, with a slot (<data>/run/replicas/<n>) whose lock the kernel
// takes away with it. A replica *holds* a thread while an instance or a request needs it (package
// ownership). It has the lease in Redis and the owner record in <data>/run/claims, both with the same
// fencing token. On the owner no request looks at either, as long as the lease was renewed in time; leases
// are renewed 500 at a time. Before each request about a thread, api/rest/forward asks who holds it, and
// passes it on to that replica, once at most. A request that may start a sandbox holds the thread itself
// when no replica does. Replicas reach each other by the sockets in their slots. When they announce
// addresses, they use TLS with certificates that name replicas (peer/network.go). A replica that stops hands
// each thread over when only its instance needs it (package ownership/drain). The owner record names no
// replica then, and the next server that is asked adopts the sandbox. Before a server removes a sandbox, it
// locks and reads the page of its owner record. When that names another owner, it lets the sandbox go.
// decision 0013 says why there are two.
//
// # After a crash
//
// Package ownership: each second every server asks whether a replica ended. Only then it reads the owner
// records and takes those of the dead one. It adopts their sandboxes when they dial again within 15 s, else
// removes them, and kills what still ran in adopted ones. Then it settles the replica: each attempt in its
// audit log without a result gets one, lost, in that same log. Package ownership/recovery does the same at a
// start, and adopts sandboxes with this data folder's label that no owner record names. A sandbox that no
// owner record names later on is removed when it was seen so for a whole lease time. Run folders without an
// owner record are deleted at a start and every ten seconds. Other servers, or the next one, remove the warm
// sandboxes of a replica that ended (pool.Pool.Sweep).
//
// Locks: see package instance: the map of the instances is a part of its own. fileWatches.mu is held alone.
// No driver, no sandbox and no store is asked while one of them is held.
package orchestrator
