// Commands to sessions.
export default {
  cancel: 'Cancel turn',
  release: 'Release',
  close: 'Close',
  timers: 'Cancel timers',
  'cancel.title': { one: 'Cancel the turn of this session?', other: 'Cancel the turns of {count} sessions?' },
  'cancel.text': 'The running turn and the messages that wait before this command end as cancelled. Actions that have run stay done. The user gets an apology, unless the turn has already answered.',
  'release.title': { one: 'Release this session?', other: 'Release {count} sessions?' },
  'release.text': 'The handoff ends and the agent answers the next message. A flow that waits for an answer is left.',
  'close.title': { one: 'Close this session?', other: 'Close {count} sessions?' },
  'close.text': 'The conversation ends and its timers are cancelled. It opens again when the user writes.',
  'timers.title': { one: 'Cancel the pending timers of this session?', other: 'Cancel the pending timers of {count} sessions?' },
  'timers.text': 'Follow-up messages and actions that wait are not sent. Timers of the engine, such as the end of a handoff, stay.',
  reason: 'Reason (optional)',
  reason_help: 'It is in the session’s status and in the audit trail.',
  sent: { one: 'The queue has the command.', other: 'The queue has {count} commands.' },
  failed: { one: '{count} session refused the command:', other: '{count} sessions refused the command:' },
} as const
