package archtest

// oversize lists the parts that exceed a limit of sizes_test.go, with their sizes. A part may leave the list, and never
// grows.
var oversize = map[part]int{
	{"internal/api/rest.Options", fields}:       26,
	{"internal/app.App", fields}:                32,
	{"internal/audit.Log", fields}:              44,
	{"internal/audit.Record", fields}:           32,
	{"internal/audit/export.Event", fields}:     27,
	{"internal/config.Config", fields}:          48,
	{"internal/execution.Exec", fields}:         33,
	{"internal/instance.Instance", fields}:      33,
	{"internal/tools/hub.serverConfig", fields}: 24,
	{"sdk/go.AuditRecord", fields}:              23,
	{"internal/api/rest", packageLines}:         6062,
	{"internal/app/cli", packageLines}:          7118,
	{"internal/audit", packageLines}:            5622,
	{"internal/tools/hub", packageLines}:        7286,
	{"internal/app.App", methods}:               66,
	{"internal/audit.Log", methods}:             55,
	{"internal/instance.Instance", methods}:     34,
	{"internal/tools/hub.Hub", methods}:         72,
	{"internal/tools/hub.conn", methods}:        30,
	{"internal/workspace/paths.FS", methods}:    40,
	{"internal/policy.Hub", interfaceMethods}:   15,
	{"sdk/go.Thread", methods}:                  66,
	{"internal/audit/record.Record", fields}:    32,
	{"internal/audit", packageLines}:            4648,
}
