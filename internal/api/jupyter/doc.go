// Package jupyter answers as a Jupyter server below /jupyter, so that Open WebUI and other clients of Jupyter run code in
// sandboxes: its REST routes of kernels, and the channels of a kernel as a WebSocket, with messages as JSON
// (jupyter-client.readthedocs.io/en/stable/messaging.html, version 5.3).
//
// A kernel is a thread of its own, "jupyter-" and the kernel's id, with one context. Nothing else is kept of it. The thread ends
// with the kernel.
//
// Each request becomes requests of the public API: see package inprocess.
//
// Locks: joined.mu is held while a connection is counted. connection.writing is held while one message is written, whose
// wait has a deadline; no request of the API is made meanwhile.
package jupyter
