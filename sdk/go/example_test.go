package skerry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example")
	defer thread.Delete(ctx)

	res, err := thread.Exec(ctx, skerry.Command{Command: "echo hello from $(whoami); exit 3"})
	if err != nil {
		log.Fatal(err) // it could not be run; a command that fails is no error
	}
	fmt.Print(res.Stdout)
	fmt.Println(res.Status, *res.ExitCode)
	// Output:
	// hello from agent
	// exited 3
}

func ExampleThread_StreamExec() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-stream")
	defer thread.Delete(ctx)

	for event, err := range thread.StreamExec(ctx, skerry.Command{Command: "for i in 1 2 3; do echo line $i; sleep 0.1; done"}) {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case skerry.Stdout:
			os.Stdout.Write(event.Data)
		case skerry.Exit:
			fmt.Println("exit code", *event.Result.ExitCode)
		}
	}
	// Output:
	// line 1
	// line 2
	// line 3
	// exit code 0
}

func ExampleThread_Start() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-start")
	defer thread.Delete(ctx)

	job, err := thread.Start(ctx, skerry.Command{Command: "sort"})
	if err != nil {
		log.Fatal(err)
	}
	if err := thread.WriteStdin(ctx, job.ExecID, []byte("pear\napple\n")); err != nil {
		log.Fatal(err)
	}
	if err := thread.CloseStdin(ctx, job.ExecID); err != nil {
		log.Fatal(err)
	}
	res, err := thread.Wait(ctx, job.ExecID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Stdout)
	// Output:
	// apple
	// pear
}

func ExampleThread_ExecuteCode() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-code")
	defer thread.Delete(ctx)

	res, err := thread.ExecuteCode(ctx, skerry.Code{Language: "python", Code: "print(sum(range(10)))"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Stdout)
	// Output: 45
}

func ExampleThread_Put() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-files")
	defer thread.Delete(ctx)

	if _, err := thread.Put(ctx, "/mnt/user-data/uploads/islands.txt", strings.NewReader("Unst\nYell\n")); err != nil {
		log.Fatal(err)
	}
	file, err := thread.Get(ctx, "/mnt/user-data/uploads/islands.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(os.Stdout, file); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Unst
	// Yell
}

func ExampleIfMatch() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-conditions")
	defer thread.Delete(ctx)
	const path = "/mnt/user-data/workspace/plan.md"

	written, err := thread.Put(ctx, path, strings.NewReader("# Plan\n"), skerry.IfAbsent())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := thread.Put(ctx, path, strings.NewReader("# Plan\nPack.\n"), skerry.IfMatch(written.ETag)); err != nil {
		log.Fatal(err)
	}
	_, err = thread.Put(ctx, path, strings.NewReader("# Another plan\n"), skerry.IfMatch(written.ETag))
	fmt.Println(errors.Is(err, skerry.ErrPreconditionFailed)) // another version is there: read it, and decide
	// Output: true
}

func ExampleThread_CallTool() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-tools")
	defer thread.Delete(ctx)

	found, err := thread.SearchTools(ctx, skerry.ToolQuery{Query: "read a text file"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Tools[0].Name)
	res, err := thread.CallTool(ctx, "files__list_allowed_directories", map[string]any{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.IsError)
	// Output:
	// files__read_text_file
	// false
}

func ExampleError() {
	ctx := context.Background()
	thread := skerry.New(server, skerry.Options{Key: key}).Thread("go-example-errors")

	_, err := thread.ReadFile(ctx, "/mnt/user-data/workspace/none.txt", 0, 0)
	fmt.Println(errors.Is(err, skerry.NotFound))

	var problem *skerry.Error
	_, err = thread.Exec(ctx, skerry.Command{Command: "ls", Argv: []string{"ls"}})
	if errors.As(err, &problem) {
		fmt.Println(problem.Code, problem.Fields[0].Field)
	}
	// Output:
	// true
	// invalid command
}

func ExampleClient_Audit() {
	ctx := context.Background()
	client := skerry.New(server, skerry.Options{Key: key})
	thread := client.Thread("go-example-audit")
	defer thread.Delete(ctx)

	res, err := thread.Exec(ctx, skerry.Command{Command: "true"})
	if err != nil {
		log.Fatal(err)
	}
	for record, err := range client.Audit(ctx, skerry.AuditFilter{Exec: res.ExecID, Action: "exec"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.Phase, record.Subject)
	}
	// Output:
	// result true
	// attempt true
}
