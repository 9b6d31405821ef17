// Types of jobs.
export default {
  user_message: 'message',
  timer: 'timer',
  resume: 'end of a run',
  control: 'command',
  run: 'run',
  human_reply: 'human reply',
  wake: 'wake-up',
} as const
