// Texts with which a new document begins.
export default {
  agents: `id: {id}
name: Ada
greeting: Hello, I am Ada. How can I help?
sop: |
  1. Find out what the user wants.
  2. Answer in at most three sentences.
  3. If the user asks for a person, hand off.
rules: # for the offline model, which needs no server
  - when: { always: true }
    decide: { next_status: typing, response: "I am new here. Write my procedure, and I follow it." }
`,
  workflows: `type: pipeline
id: {id}
description: Analyses a request and writes an answer
stages:
  - id: analyze
    runnable: analyzer_agent
    input: "{query}"
  - id: write
    runnable: processor_agent
    input: |
      Request: {query}
      Analysis: {analyze}
`,
} as const
