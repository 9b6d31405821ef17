import type { Translation } from '$/i18n'
import type en from './template.en'

export default {
  agents: `id: {id}
name: 小智
greeting: 您好，我是小智，请问有什么可以帮您？
sop: |
  一、先弄清用户要什么。
  二、用不超过三句话回答。
  三、用户要求人工时转接。
rules: # 供离线模型使用，无需模型服务
  - when: { always: true }
    decide: { next_status: typing, response: "我刚刚上岗。写好我的流程，我就照做。" }
`,
  workflows: `type: pipeline
id: {id}
description: 分析请求并写出回答
stages:
  - id: analyze
    runnable: analyzer_agent
    input: "{query}"
  - id: write
    runnable: processor_agent
    input: |
      请求：{query}
      分析：{analyze}
`,
} satisfies Translation<typeof en>
