// Package quota has the kernel limit the files of a thread, and those of all threads of a user together.
// The limit holds for every writer: code in a sandbox gets EDQUOT or ENOSPC, and so does the server.
//
// There are two ways, by the file system that the threads' folders are on:
//
//   - ext4 and xfs, mounted with usrquota and prjquota: every workspace has a uid of its own, so the
//     quota of that uid is the thread's, and the project of the folder of a user's threads is the user's;
//   - btrfs: every thread's folder is a subvolume in a quota group of its own, which is in the group of
//     the user. Quotas must be on there ("btrfs quota enable --simple").
//
// Where the data folder's file system offers neither, an image (<data>/disk.img) is made. It has ext4 or btrfs
// in it, and is mounted at <data>/tenants. The blocks of one whose size is configured are reserved when it is
// made: the threads cannot fill the host, and the host's other files take nothing from them. The one that a server
// makes by itself takes blocks as they are written, and returns those of deleted files.
//
// What a file system is said to offer is never believed: Open sets small limits and writes past them.
//
// Locks: Volume.mu guards what limits are set, and is held while the kernel sets one. No other lock is
// taken while it is held.
package quota
