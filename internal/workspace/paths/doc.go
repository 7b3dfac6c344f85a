// Package paths is the server's view of one thread's files: it takes virtual paths
// ("/mnt/user-data/workspace/a.txt"), finds what they mean on the host, and reads or changes that
// without ever leaving the thread's folders.
//
// The files belong to hostile code, which runs at the same time. It may swap a folder for a link between any
// two system calls, while the server is root. So:
//
//   - every step is taken relative to an open folder (os.Root), one name at a time; no host path is
//     ever put together and looked up again;
//   - a symbolic link is read and its target walked through the virtual folders, like the sandbox
//     would: a relative one, an absolute one (a Python venv has them), at most 40; a target outside
//     is refused. A link that is swapped in after that check is confined by os.Root, to the thread;
//   - only regular files are opened, and never so that the open could wait (a FIFO);
//   - ownership is changed only through the descriptor of what this package has just made itself
//     with O_EXCL or mkdir, never through a name;
//   - workspace, uploads and outputs of /mnt/user-data are roots of their own, so that nothing can
//     add to, or take from, the folder that holds them;
//   - a file is made in the folder StageDir beside them, which code cannot enter, and takes its place by renaming:
//     so no name in the thread's folders is the server's, and none hides anything;
//   - what a walk, a list or a snapshot holds is bounded in bytes, over all folders together.
//
// An FS is built of parts: the namespace says what a path means, and the creator makes files and folders for
// the thread's user. The diskLimit counts what there is, and the spool keeps what comes slowly.
//
// Errors are of the kinds of package sandbox: NotFound, Invalid, Forbidden, Conflict, QuotaExceeded.
// Their text names virtual paths only.
package paths
