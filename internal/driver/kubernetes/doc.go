// Package kubernetes starts sandboxes as pods, through the API server of a cluster of version 1.29 or newer.
//
// A pod's name is the sandbox's id, and all that is remembered of a sandbox is in the pod: the cluster is the only
// state. A pod has two containers. "sandbox" is the image of the template, with skerry-sandboxd as PID 1. "bridge", a native
// sidecar, is the server's way in (docs/decisions/0032-kubernetes.md): the sandbox does not see the server's disk, so this is
// a driver.Remote.
//
// What a cluster does not let a pod ask for, PID 1 puts on itself before any code of the sandbox runs: resource
// limits, the limit of processes (which counts by uid, and each sandbox has its own) and the system call filter. See
// package confine.
//
// Pods are watched, never polled. What is asked of one pod (Inspect, List) is asked of the API server, so that it is true
// also for pods that another server made just now.
//
// Locks: pods.mu guards what is known of pods; an end is put into the feed of events under it, and those who are told of an end
// are called without it. tunnels.mu and labelQueue.mu guard maps, proof.mu three values. policy.mu is held while the API server
// is asked whether policies leave the sandboxes alone, so that one caller asks for all; nothing else is asked of it under a
// mutex. None is held while another one of these is taken.
package kubernetes
