// Package instance is one sandbox on this server: of a thread (Instance), or waiting in the pool for one (Pooled).
//
// A thread has one sandbox of its own. While scripts of a skill run that wants another template, the thread has a second
// one of that template, with the same files (Instance.Main, decision 0051). It begins and ends within the life of the
// thread's own, and no other server adopts it.
//
// An Instance is what the server remembers of a sandbox while it serves it. That is where its folders and
// sockets are, whether it runs, how many execs are in it, and who waits for it. It also holds what the
// folders show, and how its execs end when it goes. The package decides nothing about when an instance
// begins or ends, and asks no driver: its callers do.
//
// The life of an Instance: New or NewStarting; callers that came early wait in its Turn; Ready is closed when the start
// has ended, well or with Err; Enter and Leave count execs; BeginStop, StopAs and StopIdle take it out of use, each once;
// Gone is closed when nothing of it is left.
//
// Locks: the outermost are first here. Life.PauseMu serialises the calls of a driver, and Saved.WriteMu the writes of a
// file; everything may be taken under them. Then ToolsView.Mu, and its disk; SkillsView.Mu; Sync.Showing of package
// filesync. Load's mutex is held while Unwatch asks whether the instance is idle, which takes Life.mu.
//
// Map.mu guards the map of the instances and the Seat of each. Under it may be taken Life.mu, the mutex of the pool,
// and those of the slots and of the limits. So a claim of the pool and the end of an instance are one step.
//
// Life.mu is held for no longer than it takes to read or change a few fields; only Turn.mu is taken under it.
// Saved.mu, Used.mu, Conn.mu, disk.mu, redaction.mu, Narrow.Mu and Retirements.mu are held alone.
package instance
