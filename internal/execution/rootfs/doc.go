// Package rootfs is the files of a running sandbox that no folder of the host holds, such as those in /tmp. sandboxd reads and
// changes them, as the sandbox's user, and they go with the sandbox.
//
// sandboxd is hostile ground: what it says of files is data, which package sandboxapi/client bounds. Files of the thread
// (/mnt/user-data) are those of package workspace/files, which needs no sandbox.
package rootfs
