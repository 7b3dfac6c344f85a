package store

import "context"

// TellFileChange tells all servers of a change of files that one server made. It is not kept: a server that is away misses
// it.
func (s *conn) TellFileChange(ctx context.Context, text string) error {
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(s.rdb.Publish(ctx, filesChannel, text).Err())
}

// WatchFileChanges calls changed with each text of TellFileChange, until ctx ends; with "" when some may have been missed.
func (s *conn) WatchFileChanges(ctx context.Context, changed func(text string)) {
	s.watch(ctx, filesChannel, changed)
}
