// Package forward passes on requests between servers that share a data folder. The server that holds a
// thread answers requests about its sandbox. Any other server passes the request on unchanged, with its
// credential and its id. It passes the answer back as it comes, be it a stream, an upload or a WebSocket. A
// request is passed on once. Only the listener for other servers marks requests as passed on, and this
// server answers or refuses them. When a request is refused because the thread has moved meanwhile, it is
// passed on again. Its body waits for a sign of who receives it (100 Continue).
//
// A server that stops passes on all that is not about its own threads.
package forward
