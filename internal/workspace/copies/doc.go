// Package copies keeps the files of threads the same on the server's disk and in sandboxes with their own
// disk. Package filesync copies for one sandbox; this package says when: for readers and writers of files,
// for execs, and at the end of a sandbox. With a driver whose sandboxes see the server's disk all of it
// does nothing.
//
//   - Pull before the end of an exec is told (lists of changed files compare the server's copy after
//     it), before the API reads or changes files, and before a sandbox is removed. A pull that began
//     after an exec ended serves all that ended by then. A read pulls only when something ran, runs, or
//     lives (contexts) since the last one.
//   - Push: what the server changed is *due*, by path, until the sandbox has it: changed files before
//     the API's answer, in one turn with the change; skills, plugins and wrappers in the background,
//     once for all that changed meanwhile, 32 instances side by side. Nothing is pulled and nothing
//     begins to run before what is due is there.
//   - Attach with the token of the ownership: at Create, when a sandbox is adopted, when one of the pool
//     gets a thread (its folder has moved), when a lease is taken again. Detach when the instance is let
//     go. A higher token seen there is another server's: that one's sandbox is left alone.
//   - When it fails: an exec whose files could not be copied ends as lost with a detail, the server's
//     copy is that of the end told last, and a sandbox out of reach for 20 s is ended. One with more
//     than its limit goes on. A change that could not be pushed is kept, and answered unavailable.
//   - Requests about files go to the thread's owner (rest.Options.RemoteFiles), and an upload arrives
//     whole before it takes its turn, so that no slow client holds up the end of an exec.
package copies
