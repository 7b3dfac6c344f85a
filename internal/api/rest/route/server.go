package route

// Server is the server that answers a request.
type Server int

const (
	// AnyServer answers. While this server stops, another one answers what changes something.
	AnyServer Server = iota
	// Owner is the server that runs the thread's sandbox; without one, this server answers.
	Owner
	// Holder is Owner for a request that may start a sandbox: without an owner this server holds the
	// thread while it answers.
	Holder
	// ExecOwner is the server that ran the exec.
	ExecOwner
	// FileReader is AnyServer where all servers see the thread's files. Where its sandbox has copies, it
	// is Owner.
	FileReader
	// FileWriter is AnyServer where all servers see the thread's files. Where its sandbox has copies, it
	// is Holder.
	FileWriter
)

// Of resolves FileReader and FileWriter. copies: sandboxes have copies of their threads' files.
func (s Server) Of(copies bool) Server {
	switch {
	case s == FileReader && copies:
		return Owner
	case s == FileWriter && copies:
		return Holder
	case s == FileReader, s == FileWriter:
		return AnyServer
	}
	return s
}
