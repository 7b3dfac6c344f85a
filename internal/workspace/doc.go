// Package workspace has the files of threads on this server's disk: each thread's in a folder of its own, which belongs to
// a uid that no other thread ever has.
//
// A folder appears whole, by one rename (Make). One rename moves it into a folder ".deleted-…" beside it,
// which is then emptied (Discard, RemoveDiscarded). So every thread's folder is complete, and Sweep knows by
// its name what a dead server left. The owner of the folder "workspace" in it is the truth of the thread's
// uid (UID).
//
// The home of an MCP server in a sandbox (Homes) is made, counted and removed in the same way, and lies among the
// threads of its user. Its program writes the folder "home" in it; "about.json" says whose it is.
package workspace
