package archtest

// exception is the size that a part has beyond its limit, and why it stays one part.
type exception struct {
	size int
	why  string
}

// oversize lists the parts that exceed a limit of sizes_test.go. A part may leave the list, and never grows.
var oversize = map[part]exception{
	{"internal/audit/record.Record", fields}: {32, "the format of a line of the audit log: its members are hashed in this order"},
	{"internal/audit/export.Event", fields}:  {27, "an event of OCSF 1.8, whose schema names the members"},
	{"internal/config.Config", fields}:       {41, "the keys at the top of the configuration file, of which docs/configuration.md is made"},
	{"sdk/go.Thread", methods}:               {66, "a client's thread: programs write thread.Exec and thread.WriteFile, in all three clients"},
}
