"""Clients that return the arrays they get."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    del context
    content = RecordDict(
        {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
    )
    return Message(content, reply_to=message)
