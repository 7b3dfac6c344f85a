package files

import (
	"bytes"
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// fileRoutes are the routes of files.
type fileRoutes struct {
	api   *route.API
	files service.Files
}

// PathIn names a path of a thread by query.
type PathIn struct {
	route.ThreadIn
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Virtual path, such as /mnt/user-data/workspace/a.txt"`
}

type readFileIn struct {
	PathIn
	Offset int `query:"offset" minimum:"0" doc:"Lines to pass over"`
	Limit  int `query:"limit" minimum:"1" maximum:"100000" default:"2000" doc:"Lines to give"`
}

type writeFileIn struct {
	route.ThreadIn
	Body struct {
		Path     string `json:"path" maxLength:"4096"`
		Content  string `json:"content"`
		Encoding string `json:"encoding,omitempty" enum:"utf-8,base64"`
		Append   bool   `json:"append,omitempty"`
	}
}

type editFileIn struct {
	route.ThreadIn
	Body struct {
		Path       string `json:"path" maxLength:"4096"`
		Old        string `json:"old" minLength:"1"`
		New        string `json:"new"`
		ReplaceAll bool   `json:"replace_all,omitempty"`
	}
}

type listFilesIn struct {
	PathIn
	Depth int `query:"depth" minimum:"1" maximum:"64" default:"1"`
	Limit int `query:"limit" minimum:"1" maximum:"10000" default:"10000"`
}

type globIn struct {
	PathIn
	Pattern string `query:"pattern" required:"true" maxLength:"1000" doc:"Relative to path; ** is any number of folders"`
}

type grepIn struct {
	PathIn
	Pattern    string `query:"pattern" required:"true" maxLength:"1000"`
	Regex      bool   `query:"regex" doc:"The pattern is an RE2 expression"`
	Glob       string `query:"glob" maxLength:"1000" doc:"Only files that match"`
	Max        int    `query:"max" minimum:"1" maximum:"1000" default:"100"`
	IgnoreCase bool   `query:"ignore_case"`
	Context    int    `query:"context" minimum:"0" maximum:"10" doc:"Lines before and after"`
}

func (s fileRoutes) add() {
	const files = "/api/threads/{thread}/files"
	route.Register(s.api, route.On(http.MethodGet, files, "readFile", route.TagFiles, route.Agents.At(route.FileReader), "A file by lines; base64 when it is not text"), s.readFile)
	op := route.On(http.MethodPut, files, "writeFile", route.TagFiles, route.Agents.At(route.FileWriter), "Write a text file: 201 when it is new; parents are made")
	route.Register(s.api, route.Also[paths.Written](s.api, op, "201", "The file is new"), s.writeFile)
	route.Register(s.api, route.On(http.MethodPost, files+"/edit", "editFile", route.TagFiles, route.Agents.At(route.FileWriter), "Replace a text in a file; conflict when it is absent or not unique"), s.editFile)
	route.Register(s.api, route.On(http.MethodGet, files+"/list", "listFiles", route.TagFiles, route.Agents.At(route.FileReader), "What a folder holds"), s.listFiles)
	route.Register(s.api, route.On(http.MethodGet, files+"/glob", "globFiles", route.TagFiles, route.Agents.At(route.FileReader), "Files whose path matches a pattern"), s.globFiles)
	route.Register(s.api, route.On(http.MethodGet, files+"/grep", "grepFiles", route.TagFiles, route.Agents.At(route.FileReader), "Lines that match a pattern"), s.grepFiles)
	route.Register(s.api, route.On(http.MethodGet, files+"/stat", "statFile", route.TagFiles, route.Agents.At(route.FileReader), "One file or folder"), s.statFile)
	route.Register(s.api, route.On(http.MethodDelete, files, "deleteFile", route.TagFiles, route.Agents.At(route.FileWriter), "Delete a file, or a folder with recursive"), s.deleteFile)
	route.Register(s.api, route.On(http.MethodPost, files+"/mkdir", "makeFolder", route.TagFiles, route.Agents.At(route.FileWriter), "Make a folder and its parents"), s.makeFolder)
	route.Register(s.api, route.On(http.MethodPost, files+"/move", "moveFile", route.TagFiles, route.Agents.At(route.FileWriter), "Rename a file or folder; conflict when the new name exists"), s.moveFile)
}

func (s fileRoutes) readFile(ctx context.Context, in *readFileIn) (*route.Body[paths.Text], error) {
	text, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (paths.Text, error) { return f.Read(in.Path, in.Offset, in.Limit) })
	if err != nil {
		return nil, err
	}
	return route.BodyOf(text), nil
}

func (s fileRoutes) writeFile(ctx context.Context, in *writeFileIn) (*route.StatusBody[paths.Written], error) {
	data, err := route.Decode(in.Body.Content, in.Body.Encoding)
	if err != nil {
		return nil, err
	}
	w, err := service.Put(ctx, s.files, exchange.CallerOf(ctx), in.Thread, in.Body.Path, func(f *paths.FS) (paths.Written, error) {
		return f.Write(ctx, in.Body.Path, bytes.NewReader(data), in.Body.Append)
	})
	if err != nil {
		return nil, err
	}
	return &route.StatusBody[paths.Written]{Status: writtenStatus(w), Body: w}, nil
}

func writtenStatus(w paths.Written) int {
	if w.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (s fileRoutes) editFile(ctx context.Context, in *editFileIn) (*route.Body[paths.Edited], error) {
	var e paths.Edited
	err := s.files.ChangeFiles(ctx, exchange.CallerOf(ctx), in.Thread, audit.ActionFileEdit, in.Body.Path, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Edit(ctx, in.Body.Path, in.Body.Old, in.Body.New, in.Body.ReplaceAll)
		return e.Bytes, err
	})
	if err != nil {
		return nil, err
	}
	return route.BodyOf(e), nil
}

func (s fileRoutes) listFiles(ctx context.Context, in *listFilesIn) (*route.Body[paths.Listing], error) {
	l, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (paths.Listing, error) { return f.List(ctx, in.Path, in.Depth, in.Limit) })
	if err != nil {
		return nil, err
	}
	return route.BodyOf(l), nil
}

func (s fileRoutes) globFiles(ctx context.Context, in *globIn) (*route.Body[paths.Listing], error) {
	l, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (paths.Listing, error) { return f.Glob(ctx, in.Path, in.Pattern) })
	if err != nil {
		return nil, err
	}
	return route.BodyOf(l), nil
}

func (s fileRoutes) grepFiles(ctx context.Context, in *grepIn) (*route.Body[paths.Matches], error) {
	o := paths.GrepOptions{Pattern: in.Pattern, Regexp: in.Regex, Glob: in.Glob, IgnoreCase: in.IgnoreCase, Context: in.Context, Max: in.Max}
	m, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (paths.Matches, error) { return f.Grep(ctx, in.Path, o) })
	if err != nil {
		return nil, err
	}
	return route.BodyOf(m), nil
}

func (s fileRoutes) statFile(ctx context.Context, in *PathIn) (*route.Body[paths.Entry], error) {
	e, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (paths.Entry, error) { return f.Stat(in.Path) })
	if err != nil {
		return nil, err
	}
	return route.BodyOf(e), nil
}

func (s fileRoutes) deleteFile(ctx context.Context, in *struct {
	PathIn
	Recursive bool `query:"recursive"`
},
) (*struct{}, error) {
	return nil, s.files.ChangeFiles(ctx, exchange.CallerOf(ctx), in.Thread, audit.ActionFileDelete, in.Path, func(f *paths.FS) (int64, error) {
		return 0, f.Remove(ctx, in.Path, in.Recursive)
	})
}

func (s fileRoutes) makeFolder(ctx context.Context, in *struct {
	route.ThreadIn
	Body struct {
		Path string `json:"path" maxLength:"4096"`
	}
},
) (*route.Body[paths.Entry], error) {
	var e paths.Entry
	err := s.files.ChangeFiles(ctx, exchange.CallerOf(ctx), in.Thread, audit.ActionFileMkdir, in.Body.Path, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Mkdir(in.Body.Path)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	return route.BodyOf(e), nil
}

func (s fileRoutes) moveFile(ctx context.Context, in *struct {
	route.ThreadIn
	Body struct {
		From string `json:"from" maxLength:"4096"`
		To   string `json:"to" maxLength:"4096"`
	}
},
) (*route.Body[paths.Entry], error) {
	var e paths.Entry
	subject := in.Body.From + " -> " + in.Body.To
	err := s.files.ChangeFiles(ctx, exchange.CallerOf(ctx), in.Thread, audit.ActionFileMove, subject, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Move(in.Body.From, in.Body.To)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	return route.BodyOf(e), nil
}
