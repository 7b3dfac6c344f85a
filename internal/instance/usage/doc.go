// Package usage writes what threads use into their records: execs, how long they ran, and the size of the files.
//
// An instance counts its execs in memory. The count is written with the thread's last activity, which costs no further round
// trip. Look writes what no later exec wrote, and Flush what is left before the instance goes. A server that is killed loses
// what it counted since it last wrote.
//
// Files are measured at the end of a sandbox, in the background, and every measureEvery while a sandbox is used. Walks of living
// sandboxes take a fifth of the time of one goroutine at most.
//
// Nothing here is on the way of an exec, and no error reaches one.
package usage
