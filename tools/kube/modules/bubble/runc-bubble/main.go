// runc-bubble makes a container's specification fit for a user namespace, then becomes runc.
//
// containerd calls it in place of runc. Inside the bubble there are no cgroups to write (unless RUNC_BUBBLE_CGROUPS is
// 1), perhaps one mapped user id only, and perhaps a runc without seccomp (unless RUNC_BUBBLE_SECCOMP is 1); what the
// specification asks of these is taken out. Everything else is passed through unread. The real runc is named by
// RUNC_BUBBLE_TARGET.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

type object = map[string]any

// idMap lists the ranges of ids that exist in this user namespace.
type idMap []struct{ first, count int64 }

func readIDMap(path string) (idMap, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var ranges idMap
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var first, outside, count int64
		if n, _ := fmt.Sscan(lines.Text(), &first, &outside, &count); n == 3 {
			ranges = append(ranges, struct{ first, count int64 }{first, count})
		}
	}
	return ranges, nil
}

func (m idMap) has(id int64) bool {
	for _, r := range m {
		if id >= r.first && id < r.first+r.count {
			return true
		}
	}
	return false
}

type fitter struct {
	users, groups idMap
	keepSeccomp   bool
	keepCgroups   bool
}

// spec fits a whole container specification.
func (f fitter) spec(spec object) {
	if linux, ok := spec["linux"].(object); ok {
		if !f.keepCgroups {
			delete(linux, "cgroupsPath")
			delete(linux, "resources")
		}
		if !f.keepSeccomp {
			delete(linux, "seccomp")
		}
	}
	mounts, _ := spec["mounts"].([]any)
	for _, entry := range mounts {
		if mount, ok := entry.(object); ok {
			f.mount(mount)
		}
	}
	if process, ok := spec["process"].(object); ok {
		f.process(process)
	}
}

// mount drops the options uid= and gid= of ids that do not exist here (devpts asks for gid=5).
func (f fitter) mount(mount object) {
	options, ok := mount["options"].([]any)
	if !ok {
		return
	}
	kept := make([]any, 0, len(options))
	for _, option := range options {
		text, _ := option.(string)
		var id int64
		if n, _ := fmt.Sscanf(text, "gid=%d", &id); n == 1 && !f.groups.has(id) {
			continue
		}
		if n, _ := fmt.Sscanf(text, "uid=%d", &id); n == 1 && !f.users.has(id) {
			continue
		}
		kept = append(kept, option)
	}
	mount["options"] = kept
}

// process turns ids that do not exist here into 0: with one mapped id every container runs as the caller.
func (f fitter) process(process object) {
	user, ok := process["user"].(object)
	if !ok {
		return
	}
	if id, ok := user["uid"].(json.Number); ok && !f.users.hasNumber(id) {
		user["uid"] = 0
	}
	if id, ok := user["gid"].(json.Number); ok && !f.groups.hasNumber(id) {
		user["gid"] = 0
	}
	if groups, ok := user["additionalGids"].([]any); ok {
		kept := make([]any, 0, len(groups))
		for _, group := range groups {
			if id, ok := group.(json.Number); ok && f.groups.hasNumber(id) {
				kept = append(kept, id)
			}
		}
		user["additionalGids"] = kept
	}
}

func (m idMap) hasNumber(number json.Number) bool {
	id, err := number.Int64()
	return err == nil && m.has(id)
}

// rewrite applies fit to the JSON object in the file at path.
func rewrite(path string, fit func(object)) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber() // limits such as 2^63-1 must not pass through a float
	var value object
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fit(value)
	fitted, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, fitted, 0o600)
}

// option finds the value of --long or -short in arguments.
func option(arguments []string, long, short string) string {
	for i, argument := range arguments {
		if value, found := strings.CutPrefix(argument, long+"="); found {
			return value
		}
		if (argument == long || argument == short) && i+1 < len(arguments) {
			return arguments[i+1]
		}
	}
	return ""
}

func verb(arguments []string) string {
	for _, argument := range arguments {
		switch argument {
		case "create", "run", "exec":
			return argument
		}
	}
	return ""
}

func prepare(arguments []string) error {
	command := verb(arguments)
	if command == "" {
		return nil
	}
	var fit fitter
	var err error
	if fit.users, err = readIDMap("/proc/self/uid_map"); err != nil {
		return err
	}
	if fit.groups, err = readIDMap("/proc/self/gid_map"); err != nil {
		return err
	}
	fit.keepSeccomp = os.Getenv("RUNC_BUBBLE_SECCOMP") == "1"
	fit.keepCgroups = os.Getenv("RUNC_BUBBLE_CGROUPS") == "1"
	if command == "exec" {
		if path := option(arguments, "--process", "-p"); path != "" {
			return rewrite(path, fit.process)
		}
		return nil
	}
	bundle := option(arguments, "--bundle", "-b")
	return rewrite(filepath.Join(bundle, "config.json"), fit.spec)
}

func main() {
	target := os.Getenv("RUNC_BUBBLE_TARGET")
	if target == "" {
		fail("RUNC_BUBBLE_TARGET does not name a runc")
	}
	if err := prepare(os.Args[1:]); err != nil {
		fail(err.Error())
	}
	err := syscall.Exec(target, append([]string{target}, os.Args[1:]...), os.Environ())
	fail("cannot start " + target + ": " + err.Error())
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "runc-bubble: "+message)
	os.Exit(1)
}
