import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./app.css";
import { App } from "./app";
import { readFileData } from "./data/file_data";
import { FileSource } from "./data/file_source";
import { ServerSource } from "./data/server_source";

const data = document.getElementById("data");
const source = data ? new FileSource(readFileData(data.textContent ?? "")) : new ServerSource();
// A data element is large; the decoded copy is enough.
data?.remove();
render(<App source={source} />, document.getElementById("app")!);
