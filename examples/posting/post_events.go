// Post events from standard input to Hourmark: one JSON object per line, with retries.
//
//	go run post_events.go [--validate-only] URL TYPE < events.ndjson
//
// The environment variable HOURMARK_TOKEN holds the token if the service requires one.
// HOURMARK_RETRY_SECONDS is the time after which a batch is given up (default 600).
//
// Exit codes (`go run` prints them and exits with 1; `go build` gives a program that has them):
//
//	0  every event was stored (or, with --validate-only, is valid)
//	1  every batch was processed, but some events were rejected: see standard error
//	2  a request was refused, or the arguments are wrong: a retry cannot succeed
//	3  a batch was given up after retries: it may or may not have been stored
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	batchLinesMax   = 500
	batchBytesMax   = 1_000_000        // the service accepts 1 MiB (service.range_bytes_max)
	responseTimeout = 60 * time.Second // longer than the service waits for Kafka
	backoffMin      = 500 * time.Millisecond
	backoffMax      = 30 * time.Second
)

// refused: nothing was stored, and a retry cannot succeed.
type refused struct{ problem string }

func (e refused) Error() string { return e.problem }

// response is the part of a 200 response that this program uses.
type response struct {
	Events      int `json:"events"`
	DeadLetters int `json:"dead_letters"`
	Rejected    []struct {
		Index  int    `json:"index"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	} `json:"rejected"`
}

// client follows no redirect: one would turn the POST into a GET. Its transport repeats a request
// with an Idempotency-Key once by itself if a reused connection turns out to be closed.
var client = &http.Client{
	Timeout: responseTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

// uuid7 returns a new UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random bits.
func uuid7() string {
	var id [16]byte
	if _, err := rand.Read(id[6:]); err != nil {
		panic(err)
	}
	var now [8]byte
	binary.BigEndian.PutUint64(now[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], now[2:])
	id[6] = id[6]&0x0f | 0x70 // version
	id[8] = id[8]&0x3f | 0x80 // variant
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// batches calls post with the number of the first line and the lines of each batch that the
// service accepts. A single line may be longer.
func batches(input io.Reader, post func(first int, lines [][]byte) error) error {
	reader := bufio.NewReader(input)
	first, size := 1, 0
	var batch [][]byte
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := post(first, batch)
		first, size, batch = first+len(batch), 0, nil
		return err
	}
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if len(line) > 0 {
			if len(batch) == batchLinesMax || size+len(line) > batchBytesMax {
				if err := flush(); err != nil {
					return err
				}
			}
			batch, size = append(batch, line), size+len(line)
		}
		if err == io.EOF {
			return flush()
		}
	}
}

// send sends one request and returns the status, the Retry-After header (or 0), and the body.
func send(url string, header http.Header, body []byte) (int, time.Duration, []byte, error) {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, nil, refused{err.Error()}
	}
	request.Header = header
	answer, err := client.Do(request)
	if err != nil {
		return 0, 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	seconds, _ := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31)
	return answer.StatusCode, time.Duration(seconds) * time.Second, text, err
}

// retried returns whether a status is temporary. Every other status is final.
func retried(status int) bool {
	switch status {
	case 408, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// postBatch posts one batch until it is answered. The error is `refused` if the service refused the
// request; any other error means that no attempt succeeded in time.
func postBatch(url string, body []byte, token string, retry time.Duration) (response, error) {
	// One key for all attempts: it makes each retry the same batch, so that nothing is stored twice.
	header := http.Header{
		"Content-Type":    {"application/x-ndjson"},
		"Idempotency-Key": {uuid7()},
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	giveUpAt := time.Now().Add(retry)
	for attempt := 0; ; attempt++ {
		status, retryAfter, text, err := send(url, header, body)
		if err == nil && status == http.StatusOK {
			var content response
			if err = json.Unmarshal(text, &content); err == nil {
				return content, nil
			}
		} else if err == nil {
			err = fmt.Errorf("%d %s", status, bytes.TrimSpace(text))
			if !retried(status) {
				return response{}, refused{err.Error()}
			}
		} else if errors.As(err, &refused{}) {
			return response{}, err
		} // otherwise there is no complete response: the batch may have been stored
		backoff := min(float64(backoffMax), float64(backoffMin)*math.Pow(2, float64(attempt)))
		delay := retryAfter + time.Duration(mathrand.Float64()*backoff) // jitter
		if time.Now().Add(delay).After(giveUpAt) {
			return response{}, err
		}
		fmt.Fprintf(os.Stderr, "retry in %.1f s: %v\n", delay.Seconds(), err)
		time.Sleep(delay)
	}
}

func run(args []string) int {
	validateOnly := len(args) > 0 && args[0] == "--validate-only"
	if validateOnly {
		args = args[1:]
	}
	if len(args) != 2 || !strings.HasPrefix(args[0], "http") {
		fmt.Fprintln(os.Stderr, "usage: post_events [--validate-only] URL TYPE < events.ndjson")
		return 2
	}
	url, outcome := strings.TrimRight(args[0], "/")+"/v1/events/"+args[1], "stored"
	if validateOnly {
		url, outcome = url+":validate", "valid"
	}
	retrySeconds, err := strconv.ParseFloat(os.Getenv("HOURMARK_RETRY_SECONDS"), 64)
	if err != nil {
		retrySeconds = 600
	}
	retry := time.Duration(retrySeconds * float64(time.Second))
	accepted, rejected := 0, 0
	err = batches(os.Stdin, func(first int, lines [][]byte) error {
		content, err := postBatch(url, bytes.Join(lines, nil), os.Getenv("HOURMARK_TOKEN"), retry)
		if errors.As(err, &refused{}) {
			return fmt.Errorf("lines from %d on: refused: %w", first, err)
		} else if err != nil {
			return fmt.Errorf("lines from %d on: given up: %w", first, err)
		}
		accepted, rejected = accepted+content.Events, rejected+content.DeadLetters
		for _, row := range content.Rejected {
			fmt.Fprintf(os.Stderr, "line %d: %s: %s\n", first+row.Index, row.Reason, row.Detail)
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.As(err, &refused{}) {
			return 2
		}
		return 3
	}
	fmt.Printf("%d events %s, %d rejected\n", accepted, outcome, rejected)
	if rejected > 0 {
		return 1
	}
	return 0
}

func main() {
	os.Exit(run(os.Args[1:]))
}
