// Package forward passes on requests between servers that have one data folder. A request about a thread's
// sandbox is answered by the server that holds the thread: any other passes it on as it is, with its
// credential and its id, and the answer back as it comes, be it a stream, an upload or a WebSocket. A
// request is passed on once: only what listens for the other servers says that one was, and what comes
// from there is answered or refused. A request that is refused because the thread has moved meanwhile is
// passed on anew: its body waits for a sign of who gets it (100 Continue).
//
// A server that stops passes on all that is not about its own threads.
package forward
