// The search of the built site, as its worker runs it in a browser:
// node site_search.js WORKER < {"docs": […], "queries": […]}; prints the first page of each query.
const fs = require("fs")
const vm = require("vm")

const { docs, queries } = JSON.parse(fs.readFileSync(0, "utf8"))
let receive
const replies = []
globalThis.self = globalThis
globalThis.addEventListener = (_, handler) => { receive = handler }
globalThis.postMessage = message => replies.push(message)
vm.runInThisContext(fs.readFileSync(process.argv[2], "utf8"))

const [SETUP, QUERY] = [0, 2]
const config = {
  lang: ["en"], separator: "[\\s\\-]+", pipeline: ["stopWordFilter"],
  fields: { title: { boost: 1000 }, text: { boost: 1 }, tags: { boost: 1000000 } }
}

async function main() {
  await receive({ data: { type: SETUP, data: { config, docs, options: {} } } })
  const found = []
  for (const query of queries) {
    await receive({ data: { type: QUERY, data: query } })
    found.push(replies.pop().data.items.map(group => group[0].location.split("#")[0]))
  }
  console.log(JSON.stringify(found))
}

main()
