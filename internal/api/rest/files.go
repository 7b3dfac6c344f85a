package rest

import (
	"bytes"
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// fileRoutes are the routes of files.
type fileRoutes struct{ *server }

// PathIn names a path of a thread by query.
type PathIn struct {
	ThreadIn
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Virtual path, such as /mnt/user-data/workspace/a.txt"`
}

type readFileIn struct {
	PathIn
	Offset int `query:"offset" minimum:"0" doc:"Lines to pass over"`
	Limit  int `query:"limit" minimum:"1" maximum:"100000" default:"2000" doc:"Lines to give"`
}

type writeFileIn struct {
	ThreadIn
	Body struct {
		Path     string `json:"path" maxLength:"4096"`
		Content  string `json:"content"`
		Encoding string `json:"encoding,omitempty" enum:"utf-8,base64"`
		Append   bool   `json:"append,omitempty"`
	}
}

type editFileIn struct {
	ThreadIn
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
	register(s.server, s.api, on(http.MethodGet, files, "readFile", tagFiles, agents.at(FileReader), "A file by lines; base64 when it is not text"), s.readFile)
	op := on(http.MethodPut, files, "writeFile", tagFiles, agents.at(FileWriter), "Write a text file: 201 when it is new; parents are made")
	register(s.server, s.api, also[paths.Written](s.server, op, "201", "The file is new"), s.writeFile)
	register(s.server, s.api, on(http.MethodPost, files+"/edit", "editFile", tagFiles, agents.at(FileWriter), "Replace a text in a file; conflict when it is absent or not unique"), s.editFile)
	register(s.server, s.api, on(http.MethodGet, files+"/list", "listFiles", tagFiles, agents.at(FileReader), "What a folder holds"), s.listFiles)
	register(s.server, s.api, on(http.MethodGet, files+"/glob", "globFiles", tagFiles, agents.at(FileReader), "Files whose path matches a pattern"), s.globFiles)
	register(s.server, s.api, on(http.MethodGet, files+"/grep", "grepFiles", tagFiles, agents.at(FileReader), "Lines that match a pattern"), s.grepFiles)
	register(s.server, s.api, on(http.MethodGet, files+"/stat", "statFile", tagFiles, agents.at(FileReader), "One file or folder"), s.statFile)
	register(s.server, s.api, on(http.MethodDelete, files, "deleteFile", tagFiles, agents.at(FileWriter), "Delete a file, or a folder with recursive"), s.deleteFile)
	register(s.server, s.api, on(http.MethodPost, files+"/mkdir", "makeFolder", tagFiles, agents.at(FileWriter), "Make a folder and its parents"), s.makeFolder)
	register(s.server, s.api, on(http.MethodPost, files+"/move", "moveFile", tagFiles, agents.at(FileWriter), "Rename a file or folder; conflict when the new name exists"), s.moveFile)
}

func (s fileRoutes) readFile(ctx context.Context, in *readFileIn) (*body[paths.Text], error) {
	text, err := service.View(ctx, s.o.Files, callerOf(ctx), in.Thread, func(f *paths.FS) (paths.Text, error) { return f.Read(in.Path, in.Offset, in.Limit) })
	if err != nil {
		return nil, err
	}
	return bodyOf(text), nil
}

func (s fileRoutes) writeFile(ctx context.Context, in *writeFileIn) (*statusBody[paths.Written], error) {
	data, err := decode(in.Body.Content, in.Body.Encoding)
	if err != nil {
		return nil, err
	}
	w, err := service.Put(ctx, s.o.Files, callerOf(ctx), in.Thread, in.Body.Path, func(f *paths.FS) (paths.Written, error) {
		return f.Write(ctx, in.Body.Path, bytes.NewReader(data), in.Body.Append)
	})
	if err != nil {
		return nil, err
	}
	return &statusBody[paths.Written]{Status: writtenStatus(w), Body: w}, nil
}

func writtenStatus(w paths.Written) int {
	if w.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (s fileRoutes) editFile(ctx context.Context, in *editFileIn) (*body[paths.Edited], error) {
	var e paths.Edited
	err := s.o.Files.ChangeFiles(ctx, callerOf(ctx), in.Thread, audit.ActionFileEdit, in.Body.Path, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Edit(ctx, in.Body.Path, in.Body.Old, in.Body.New, in.Body.ReplaceAll)
		return e.Bytes, err
	})
	if err != nil {
		return nil, err
	}
	return bodyOf(e), nil
}

func (s fileRoutes) listFiles(ctx context.Context, in *listFilesIn) (*body[paths.Listing], error) {
	l, err := service.View(ctx, s.o.Files, callerOf(ctx), in.Thread, func(f *paths.FS) (paths.Listing, error) { return f.List(ctx, in.Path, in.Depth, in.Limit) })
	if err != nil {
		return nil, err
	}
	return bodyOf(l), nil
}

func (s fileRoutes) globFiles(ctx context.Context, in *globIn) (*body[paths.Listing], error) {
	l, err := service.View(ctx, s.o.Files, callerOf(ctx), in.Thread, func(f *paths.FS) (paths.Listing, error) { return f.Glob(ctx, in.Path, in.Pattern) })
	if err != nil {
		return nil, err
	}
	return bodyOf(l), nil
}

func (s fileRoutes) grepFiles(ctx context.Context, in *grepIn) (*body[paths.Matches], error) {
	o := paths.GrepOptions{Pattern: in.Pattern, Regexp: in.Regex, Glob: in.Glob, IgnoreCase: in.IgnoreCase, Context: in.Context, Max: in.Max}
	m, err := service.View(ctx, s.o.Files, callerOf(ctx), in.Thread, func(f *paths.FS) (paths.Matches, error) { return f.Grep(ctx, in.Path, o) })
	if err != nil {
		return nil, err
	}
	return bodyOf(m), nil
}

func (s fileRoutes) statFile(ctx context.Context, in *PathIn) (*body[paths.Entry], error) {
	e, err := service.View(ctx, s.o.Files, callerOf(ctx), in.Thread, func(f *paths.FS) (paths.Entry, error) { return f.Stat(in.Path) })
	if err != nil {
		return nil, err
	}
	return bodyOf(e), nil
}

func (s fileRoutes) deleteFile(ctx context.Context, in *struct {
	PathIn
	Recursive bool `query:"recursive"`
},
) (*struct{}, error) {
	return nil, s.o.Files.ChangeFiles(ctx, callerOf(ctx), in.Thread, audit.ActionFileDelete, in.Path, func(f *paths.FS) (int64, error) {
		return 0, f.Remove(ctx, in.Path, in.Recursive)
	})
}

func (s fileRoutes) makeFolder(ctx context.Context, in *struct {
	ThreadIn
	Body struct {
		Path string `json:"path" maxLength:"4096"`
	}
},
) (*body[paths.Entry], error) {
	var e paths.Entry
	err := s.o.Files.ChangeFiles(ctx, callerOf(ctx), in.Thread, audit.ActionFileMkdir, in.Body.Path, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Mkdir(in.Body.Path)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	return bodyOf(e), nil
}

func (s fileRoutes) moveFile(ctx context.Context, in *struct {
	ThreadIn
	Body struct {
		From string `json:"from" maxLength:"4096"`
		To   string `json:"to" maxLength:"4096"`
	}
},
) (*body[paths.Entry], error) {
	var e paths.Entry
	subject := in.Body.From + " -> " + in.Body.To
	err := s.o.Files.ChangeFiles(ctx, callerOf(ctx), in.Thread, audit.ActionFileMove, subject, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Move(in.Body.From, in.Body.To)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	return bodyOf(e), nil
}
