package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// conversation is all that a model reads and writes. The model's own words are scripted; every result
// is what the server really answered.
type conversation struct {
	count counter
	fixed int // tokens of the system prompt and of the definitions
	turns []turn
	err   error // the first one
}

// turn is what the model writes and what it gets back, in tokens.
type turn struct{ writes, reads int }

func (c *conversation) tokens(v any) int {
	text, ok := v.(string)
	if !ok {
		raw, err := json.Marshal(v)
		if err != nil {
			c.err = errors.Join(c.err, err)
		}
		text = string(raw)
	}
	n, err := c.count.text(text)
	c.err = errors.Join(c.err, err)
	return n
}

func (c *conversation) add(writes, reads any) {
	c.turns = append(c.turns, turn{c.tokens(writes), c.tokens(reads)})
}

// once counts each token of the conversation once: what is in the context in the end.
func (c *conversation) once() int {
	n := c.fixed
	for _, t := range c.turns {
		n += t.writes + t.reads
	}
	return n
}

// billed counts what is read at each request, the whole conversation so far, and what is written.
func (c *conversation) billed() (input, output int) {
	context := c.fixed
	for i, t := range c.turns {
		if i > 0 { // the first turn is the user's
			input += context
			output += t.writes
		}
		context += t.writes + t.reads
	}
	return input, output
}

type toolUse struct {
	Name  string `json:"name"`
	Input any    `json:"input"`
}

// story is one task, done in both ways.
type story struct {
	name, task string
	leads      []string // that it is about
	direct     func(*bench, *conversation) error
	code       func(*bench, *conversation) error
	done       func(map[string]lead) error
}

const system = "You are an assistant with tools. Do what the user asks, and say briefly what you did."

var stories = []story{
	{
		"Drive → CRM, 50 KB", "Attach the transcript of the kickoff with Northwind, which is in our Drive, to their lead in the CRM, whole, and set the lead to qualified.",
		[]string{"00Q-1001"}, transferDirect, transferCode, func(leads map[string]lead) error {
			if l := leads["00Q-1001"]; l.Transcript != transcript() || l.Status != "qualified" {
				return fmt.Errorf("the lead has the status %q and %d bytes of the transcript", l.Status, len(l.Transcript))
			}
			return nil
		},
	},
	{
		"100 KB, summarised", "Put the decisions of the review with Northwind, whose minutes are in our Drive, into the summary of their lead in the CRM, as they stand there.",
		[]string{"00Q-1001"}, summariseDirect, summariseCode, summarised,
	},
	{
		"ten records", "Set each lead of Contoso to qualified if its last activity was a meeting, and to lost if not.",
		contoso(), judgeDirect, judgeCode, judged,
	},
	{"one small call", "Set the lead 00Q-1001 to lost.", []string{"00Q-1001"}, smallDirect, smallCode, func(leads map[string]lead) error {
		if l := leads["00Q-1001"]; l.Status != "lost" {
			return fmt.Errorf("the lead has the status %q", l.Status)
		}
		return nil
	}},
}

// storyTokens prints the tokens of whole conversations.
func (b *bench) storyTokens(count counter) error {
	servers := map[string]any{
		"google-drive": map[string]any{"command": b.self, "args": []string{serverArg, "drive"}, "description": "Google Drive file management"},
		"crm":          map[string]any{"command": b.self, "args": []string{serverArg, "crm"}, "description": "CRM operations"},
	}
	const tools = 6
	if err := b.configure(servers, tools); err != nil {
		return err
	}
	for _, s := range stories {
		direct, err := b.tell(s, "direct", s.direct, count)
		if err != nil {
			return fmt.Errorf("%s, direct: %w", s.name, err)
		}
		code, err := b.tell(s, "code", s.code, count)
		if err != nil {
			return fmt.Errorf("%s, code: %w", s.name, err)
		}
		directIn, directOut := direct.billed()
		codeIn, codeOut := code.billed()
		b.tokenRow(s.name+": conversation, each once", code.once(), direct.once(), bar{})
		b.tokenRow(s.name+": read by the model", codeIn, directIn, bar{})
		b.tokenRow(s.name+": written by the model", codeOut, directOut, bar{})
	}
	return nil
}

// tell lets one conversation happen, and checks in the CRM that it did what it was asked to.
func (b *bench) tell(s story, mode string, do func(*bench, *conversation) error, count counter) (*conversation, error) {
	p, err := b.prompt(mode)
	if err != nil {
		return nil, err
	}
	if mode == "direct" {
		p = p.directOnly()
	} else {
		p = p.codeOnly()
	}
	for _, id := range s.leads { // the same start for both ways
		if _, err := b.tool("crm", "update_lead", map[string]any{"id": id, "status": "open", "transcript": "", "summary": ""}); err != nil {
			return nil, err
		}
	}
	c := &conversation{count: count}
	c.fixed = c.tokens(system + "\n" + p.definitions())
	c.add("", s.task)
	if err := do(b, c); err != nil {
		return nil, err
	}
	leads := map[string]lead{}
	for _, id := range s.leads {
		raw, err := b.tool("crm", "get_lead", map[string]any{"id": id})
		if err != nil {
			return nil, err
		}
		var l lead
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil, err
		}
		leads[id] = l
	}
	return c, errors.Join(c.err, s.done(leads))
}

// tool calls a tool at the server and returns its result.
func (b *bench) tool(server, tool string, input any) (json.RawMessage, error) {
	raw, err := b.post(http.MethodPost, "/api/threads/direct/tools/call", map[string]any{"server": server, "tool": tool, "input": input})
	if err != nil {
		return nil, err
	}
	var res struct {
		Result  json.RawMessage `json:"result"`
		IsError bool            `json:"is_error"`
	}
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, err
	}
	if res.IsError {
		return nil, fmt.Errorf("%s.%s: %s", server, tool, res.Result)
	}
	return res.Result, nil
}

// use is a turn in which the model calls a tool itself.
func (b *bench) use(c *conversation, server, printed, tool string, input any) (json.RawMessage, error) {
	result, err := b.tool(server, tool, input)
	c.add(toolUse{printed + "__" + tool, input}, result)
	return result, err
}

// document finds a document by direct calls and reads it.
func (b *bench) document(c *conversation, query string) (doc driveFile, err error) {
	raw, err := b.use(c, "google-drive", "google_drive", "search_files", map[string]any{"query": query})
	if err != nil {
		return doc, err
	}
	var files []driveFile
	if err := json.Unmarshal(raw, &files); err != nil || len(files) == 0 {
		return doc, fmt.Errorf("no file found: %w", err)
	}
	if raw, err = b.use(c, "google-drive", "google_drive", "get_document", map[string]any{"documentId": files[0].ID}); err != nil {
		return doc, err
	}
	return doc, json.Unmarshal(raw, &doc)
}

// northwind finds the lead of the stories by a direct call.
func (b *bench) northwind(c *conversation) (l lead, err error) {
	raw, err := b.use(c, "crm", "crm", "find_leads", map[string]any{"company": "Northwind"})
	if err != nil {
		return l, err
	}
	var leads []lead
	if err := json.Unmarshal(raw, &leads); err != nil || len(leads) == 0 {
		return l, fmt.Errorf("no lead found: %w", err)
	}
	return leads[0], nil
}

func transferDirect(b *bench, c *conversation) error {
	doc, err := b.document(c, "kickoff northwind")
	if err != nil {
		return err
	}
	l, err := b.northwind(c)
	if err != nil {
		return err
	}
	// The model writes the whole document once more.
	if _, err := b.use(c, "crm", "crm", "update_lead", map[string]any{"id": l.ID, "status": "qualified", "transcript": doc.Content}); err != nil {
		return err
	}
	c.add("The transcript is attached to the lead of Northwind Traders, which is qualified now.", "")
	return nil
}

const transferText = `import { searchFiles, getDocument } from './servers/google-drive';
import { findLeads, updateLead } from './servers/crm';
const [file] = await searchFiles({ query: 'kickoff northwind' }) as any[];
const doc = await getDocument({ documentId: file.id }) as any;
const [lead] = await findLeads({ company: 'Northwind' }) as any[];
await updateLead({ id: lead.id, status: 'qualified', transcript: doc.content });
console.log(doc.name, doc.content.length, '->', lead.id, lead.company);`

func transferCode(b *bench, c *conversation) error {
	if err := b.search(c, "find and read a document, find a lead and update it"); err != nil {
		return err
	}
	if err := b.execute(c, transferText); err != nil {
		return err
	}
	c.add("The transcript is attached to the lead of Northwind Traders, which is qualified now.", "")
	return nil
}

func smallDirect(b *bench, c *conversation) error {
	if _, err := b.use(c, "crm", "crm", "update_lead", map[string]any{"id": "00Q-1001", "status": "lost"}); err != nil {
		return err
	}
	c.add("The lead is set to lost.", "")
	return nil
}

func smallCode(b *bench, c *conversation) error {
	if err := b.search(c, "update a lead"); err != nil {
		return err
	}
	if err := b.execute(c, "import { updateLead } from './servers/crm';\nconsole.log(await updateLead({ id: '00Q-1001', status: 'lost' }));"); err != nil {
		return err
	}
	c.add("The lead is set to lost.", "")
	return nil
}

// search is a turn in which the model looks for tools, with their parameters.
func (b *bench) search(c *conversation, query string) error {
	raw, err := b.post(http.MethodGet, "/api/threads/code/tools?detail=full&query="+url.QueryEscape(query), nil)
	c.add(toolUse{"search_tools", map[string]any{"query": query, "detail": "full"}}, string(raw))
	return err
}

// execute is a turn in which the model runs code.
func (b *bench) execute(c *conversation, text string) error {
	input := map[string]any{"code": text}
	raw, err := b.post(http.MethodPost, "/api/threads/code/execute_code", input)
	if err != nil {
		return err
	}
	var r struct {
		ExitCode *int `json:"exit_code"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		return fmt.Errorf("the code failed: %s", raw)
	}
	c.add(toolUse{"execute_code", input}, string(raw))
	return nil
}
