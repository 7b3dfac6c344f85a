package route

// Tags group the routes in the document.
const (
	TagThreads = "Threads and sandboxes"
	TagRun     = "Running things"
	TagFiles   = "Files"
	TagTools   = "Tools"
	TagSkills  = "Skills, plugins, commands"
	TagAdmin   = "Audit and administration"
	TagServer  = "Server"
)
