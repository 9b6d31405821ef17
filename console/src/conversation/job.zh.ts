import type { Translation } from '$/i18n'
import type en from './job.en'

export default {
  user_message: '用户消息',
  timer: '定时器',
  resume: '运行结束',
  control: '命令',
  run: '运行',
  human_reply: '人工回复',
  wake: '唤醒',
} satisfies Translation<typeof en>
