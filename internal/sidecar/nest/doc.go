// Package nest starts a sandbox inside of a machine that another service gave, as an unprivileged user of it
// (docs/decisions/0052-remote.md). It makes what a container engine makes elsewhere: a user namespace in which that user has
// the uid of the sandbox, a root of its own with the mounts at their places, and a network of loopback alone. The
// program skerry-bridge does so, and is the sidecar of the sandbox besides.
//
// The private folder is the working directory of skerry-bridge: the programs, the certificate, the sockets and the
// trees. The sandbox sees of it what is mounted.
//
// Nothing here is a wall against the service, which sees all. Against the code in the sandbox the walls are those of
// the service's kernel.
package nest
