// Package kubernetes starts sandboxes as pods, through the API server of a cluster of version 1.29 or newer.
//
// A pod's name is the sandbox's id, and all that is remembered of a sandbox is in the pod: the cluster is the only
// state. A pod has two containers. "sandbox" is the image of the template, with skerry-sandboxd as PID 1. "bridge", a native
// sidecar, is the server's way in (docs/decisions/0032-kubernetes.md): the sandbox does not see the server's disk, so this is
// a driver.Remote.
//
// PID 1 applies to itself what a cluster does not let a pod ask for, before any code of the sandbox runs:
// resource limits, the limit of processes (counted by uid; each sandbox has its own) and the system call
// filter. See package confine.
//
// Pods are watched, never polled. Questions about one pod (Inspect, List) go to the API server. So the
// answer also holds for pods that another server made just now.
//
// Locks: pods.mu guards the state of pods. An end enters the feed of events under it; watchers are called
// without it. labelQueue.mu guards a map, proof.mu three values. policy.mu is held while the
// driver asks the API server whether policies leave the sandboxes alone, so one caller asks for all. No
// other request to the API server is made under a mutex. None is held while another one of these is taken.
package kubernetes
